// Package process tests the life of a process over every transport: start, input, output,
// pace, signals, limits, owners and observers, and resumption.
package process

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
