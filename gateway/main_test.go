package gateway

import (
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/server"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	server.FileWorkerMain()
	testproc.Main()
	leakcheck.Main(m)
}
