package conformance

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"regexp"
	"strconv"
	"strings"
)

// literally sends every other message as it was sent to the reference: transcripts have the
// output of a JSON parser.
func literally(texts []string) func(int, string) string {
	return func(index int, text string) string {
		if index%2 == 0 && index/2 < len(texts) {
			return texts[index/2]
		}
		return text
	}
}

// idTexts are requests with every kind of id.
func idTexts() []string {
	var texts []string
	for _, id := range []string{`"abc"`, `""`, "7", "0", "-5", "-1", "1.5", "1e3", "9223372036854775807", "9223372036854775808", "null", "true", "[]", "{}"} {
		texts = append(texts, fmt.Sprintf(`{"id":%s,"method":"process/read","params":{"processId":"p"}}`, id))
	}
	return texts
}

// envelopeTexts are messages of every shape.
var envelopeTexts = []string{
	`{"jsonrpc":"2.0","id":1,"method":"process/read","params":{"processId":"p"}}`,
	`{"jsonrpc":"1.0","id":1,"method":"process/read","params":{"processId":"p"}}`,
	`{"id":1,"method":"process/read","params":{"processId":"p"},"extra":1}`,
	`{"id":1,"method":"process/read","params":{"processId":"p"},"trace":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":null}}`,
	`{"id":1,"method":"process/read","params":{"processId":"p"},"trace":5}`,
	`{"id":1,"result":{}}`,
	`{"id":1,"error":{"code":-1,"message":"m"}}`,
	`{"id":1,"error":"x"}`,
	`{"id":1}`,
	`{}`,
	`{"method":"initialized"}`,
	`[]`,
	`[1]`,
	`[{"id":1,"method":"process/read","params":{"processId":"p"}},{"id":2,"method":"process/read","params":{"processId":"q"}}]`,
	`[{"method":"initialized","params":{}},{"id":2,"method":"process/read","params":{"processId":"q"}}]`,
	`[{"id":9,"result":{}}]`,
	`5`,
	`"x"`,
	`null`,
	`true`,
	`not json`,
	`{"id":1,"method":`,
	`{"id":1,"method":5}`,
	`{"id":1,"method":""}`,
	``,
	` `,
	"\n",
	`{"id":1,"method":"process/read","params":{"processId":"p"}} trailing`,
	`{"id":1,"method":"process/read","params":{"processId":"p"}}` + "\n" + `{"id":2,"method":"process/read","params":{"processId":"q"}}`,
	`{"id":1,"method":"process/read","params":{"processId":"p"},"params":{"processId":"dup"}}`,
	`{"id":1,"id":2,"method":"process/read","params":{"processId":"p"}}`,
	`{"id":1,"method":"process/read","result":{},"params":{"processId":"p"}}`,
	`{"id":1,"method":"process/read","params":{"processId":"p\ud800"}}`,
}

var cutBatch = regexp.MustCompile(`"<<cut: (\d+) items in all>>"`)

// wholeBatches restores the lists of requests that a transcript truncated.
func wholeBatches(_ int, text string) string {
	return cutBatch.ReplaceAllStringFunc(text, func(cut string) string {
		size, err := strconv.Atoi(cutBatch.FindStringSubmatch(cut)[1])
		if err != nil {
			panic(err)
		}
		var items []string
		for id := 30; id < size; id++ {
			items = append(items, harness.RequestText(id, "process/read", harness.RPCParams{"processId": "p"}))
		}
		return strings.Join(items, ",")
	})
}
