// Package relay tests executors behind a hub: disconnects, lost networks, streams that do
// not delay each other, and a hub whose disk is full.
package relay

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
