package sandbox

import (
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
)

func TestMain(m *testing.M) {
	testproc.Main()
	Main()
	serveWorker()
	leakcheck.Main(m)
}
