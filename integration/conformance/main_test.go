// Package conformance replays the transcripts of the reference, the documented examples
// of JSON-RPC and those of the older dialect.
package conformance

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
