// Package documents runs the examples of the documents and the programs in examples.
package documents

import (
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
