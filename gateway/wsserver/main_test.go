package wsserver_test

import (
	"testing"

	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }
