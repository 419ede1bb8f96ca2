package bench

import (
	"github.com/execwire/execwire/integration/harness"
)

// share is that of resident, with what several processes use counted in parts.
func share(p harness.ProcStat) int64 {
	p.Tb.Helper()
	return p.Memory("Pss")
}
