package wsconn_test

import (
	"os"
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(drainEnv); url != "" {
		drainURL(url)
		return
	}
	leakcheck.Main(m)
}
