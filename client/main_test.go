package client_test

import (
	"testing"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) {
	daemon.Main() // examples start servers inside this program
	leakcheck.Main(m)
}
