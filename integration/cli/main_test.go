// Package cli tests the commands as users run them.
package cli

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
