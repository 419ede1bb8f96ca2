// Package gateway tests the JSON-RPC gateway: order, sessions, backpressure, and output
// across disconnects.
package gateway

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
