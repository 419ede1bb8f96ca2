package gateway

import (
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	testproc.Main()
	leakcheck.Main(m)
}
