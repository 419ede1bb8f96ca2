// Package session tests sessions: attachments, leases, grants, limits, takeover, and what
// survives disconnects.
package session

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
