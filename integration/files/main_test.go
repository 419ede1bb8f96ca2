// Package files tests file operations over gRPC and JSON-RPC: names, links, trees,
// watches, faults, and transfers that are interrupted.
package files

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
