package jsonrpc

import (
	"os"
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
)

// The test binary is also the program of TestOpenStdio.
func TestMain(m *testing.M) {
	if os.Getenv(echoVariable) != "" {
		os.Exit(echo())
	}
	leakcheck.Main(m)
}
