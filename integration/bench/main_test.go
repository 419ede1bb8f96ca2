// Package bench measures against the budgets of docs/perf.md.
package bench

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
