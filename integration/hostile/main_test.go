// Package hostile attacks a server and checks that other clients are not affected and that
// nothing leaks.
package hostile

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
