package conformance

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// protocolExamples are the examples of gateway/PROTOCOL.md, line by line.
func protocolExamples(t *testing.T) (text string, examples [][]string) {
	t.Helper()
	data, err := os.ReadFile("../../gateway/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	text = string(data)
	for block := range strings.SplitSeq(text, "```jsonrpc\n") {
		if body, _, found := strings.Cut(block, "\n```"); found && strings.HasPrefix(body, "> ") {
			examples = append(examples, strings.Split(body, "\n"))
		}
	}
	return text, examples
}

// sayHello is the HTTP server for the examples of http/request.
func sayHello(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Date"] = nil
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "hello\n")
}

// The server behaves as gateway/PROTOCOL.md documents.
func TestProtocolDocument_Examples(t *testing.T) {
	_, examples := protocolExamples(t)
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	web := httptest.NewServer(http.HandlerFunc(sayHello))
	t.Cleanup(web.Close)
	place := strings.NewReplacer("DIR", harness.ShortDir(t), "http://WEB", web.URL)
	if len(examples) < 12 {
		t.Fatalf("the document has %d examples", len(examples))
	}
	for i, lines := range examples {
		t.Run(fmt.Sprint(i, lines[0]), func(t *testing.T) {
			c := harness.WebsocketClient(t, address)
			if !strings.Contains(lines[0], `"initialize"`) {
				c.Send(`{"id":"hello","method":"initialize","params":{"clientName":"example"}}`)
				c.Send(`{"method":"initialized"}`)
				c.Until("the handshake is answered", func(frames []harness.RPCFrame) bool { return len(frames) == 1 })
			}
			next := len(c.Record())
			for _, line := range lines {
				line = place.Replace(line)
				if said, ok := strings.CutPrefix(line, "> "); ok {
					c.Send(said)
					continue
				}
				next = expectExample(c, next, strings.TrimPrefix(line, "< "))
			}
		})
	}
}

// expectExample checks the next message against an example, and returns the position after
// it.
func expectExample(c *harness.RPCClient, next int, want string) int {
	c.Helper()
	var got harness.RPCFrame
	c.Until("the server says "+want, func(frames []harness.RPCFrame) bool {
		for next < len(frames) && frames[next].Kind != "text" {
			next++
		}
		if next == len(frames) {
			return false
		}
		got = frames[next]
		return true
	})
	expected := harness.DecodeAny([]byte(want))
	if expected == nil {
		c.Fatalf("the example %s is not JSON", want)
	}
	if !coversExample(expected, harness.DecodeAny(got.Data)) {
		c.Fatalf("the server sent\n%s\nand the document has\n%s", got.Data, want)
	}
	return next + 1
}

// coversExample is covers with an ellipsis for any value.
func coversExample(want, got any) bool {
	if want == "…" {
		return got != nil
	}
	if list, isList := want.([]any); isList {
		elements, isList := got.([]any)
		return isList && slices.EqualFunc(list, elements, coversExample)
	}
	members, isObject := want.(map[string]any)
	if !isObject {
		return covers(want, got)
	}
	object, isObject := got.(map[string]any)
	for name, member := range members {
		if value, there := object[name]; !there || !coversExample(member, value) {
			return false
		}
	}
	return isObject
}

// methodName is a method in the document.
var methodName = regexp.MustCompile("(?:`|# |, )([a-z]+(?:/[a-zA-Z]+)?)")

// The document has every method of the server.
func TestProtocolDocument_IsComplete(t *testing.T) {
	text, _ := protocolExamples(t)
	var documented []string
	for _, name := range methodName.FindAllStringSubmatch(text, -1) {
		documented = append(documented, name[1])
	}
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	known := 0
	for _, e := range readTranscript(t, newVersion, "01_method_existence") {
		value, _ := harness.DecodeAny(e.Value).(map[string]any)
		method, _ := value["method"].(string)
		if method == "" {
			continue
		}
		if answer := c.Call(method, harness.RPCParams{}); answer.Error != nil && answer.Error.Code == -32601 {
			continue
		}
		known++
		if !slices.Contains(documented, method) {
			t.Errorf("the server knows %s, which the document does not mention", method)
		}
	}
	if known < 15 {
		t.Errorf("the server knows %d methods", known)
	}
}
