// Package upgrade tests that a server is replaced by another program while it serves.
package upgrade

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
