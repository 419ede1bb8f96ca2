// Package transports tests that every client operation gives the same result over every
// transport, also while connections are cut.
package transports

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
