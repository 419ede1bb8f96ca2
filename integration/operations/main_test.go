// Package operations tests running a server: guardian, signals, limits of the system,
// local users, and the end of the server.
package operations

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
