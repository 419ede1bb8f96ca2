package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// protocolExamples are the conversations of gateway/PROTOCOL.md, line by line.
func protocolExamples(t *testing.T) (text string, examples [][]string) {
	t.Helper()
	data, err := os.ReadFile("../gateway/PROTOCOL.md")
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

// sayHello is the server that examples of http/request ask.
func sayHello(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Date"] = nil
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "hello\n")
}

// What gateway/PROTOCOL.md says is what a server does.
func TestTheProtocolDocumentIsTrue(t *testing.T) {
	_, examples := protocolExamples(t)
	address := newServer(t, nil).address(websocketDoor)
	web := httptest.NewServer(http.HandlerFunc(sayHello))
	t.Cleanup(web.Close)
	place := strings.NewReplacer("DIR", shortDir(t), "http://WEB", web.URL)
	if len(examples) < 12 {
		t.Fatalf("the document has %d examples", len(examples))
	}
	for i, lines := range examples {
		t.Run(fmt.Sprint(i, lines[0]), func(t *testing.T) {
			c := websocketClient(t, address)
			if !strings.Contains(lines[0], `"initialize"`) {
				c.send(`{"id":"hello","method":"initialize","params":{"clientName":"example"}}`)
				c.send(`{"method":"initialized"}`)
				c.until("the handshake is answered", func(frames []rpcFrame) bool { return len(frames) == 1 })
			}
			next := len(c.record())
			for _, line := range lines {
				line = place.Replace(line)
				if said, ok := strings.CutPrefix(line, "> "); ok {
					c.send(said)
					continue
				}
				next = c.expectExample(next, strings.TrimPrefix(line, "< "))
			}
		})
	}
}

// expectExample wants the next message to be as an example says, and returns
// where the one after it will be.
func (c *rpcClient) expectExample(next int, want string) int {
	c.Helper()
	var got rpcFrame
	c.until("the server says "+want, func(frames []rpcFrame) bool {
		for next < len(frames) && frames[next].kind != "text" {
			next++
		}
		if next == len(frames) {
			return false
		}
		got = frames[next]
		return true
	})
	expected := decodeAny([]byte(want))
	if expected == nil {
		c.Fatalf("the example %s is not JSON", want)
	}
	if !coversExample(expected, decodeAny(got.data)) {
		c.Fatalf("the server said\n%s\nand the document has\n%s", got.data, want)
	}
	return next + 1
}

// coversExample is covers where an ellipsis stands for any value.
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

// Every method that a server knows is in the document.
func TestTheProtocolDocumentIsComplete(t *testing.T) {
	text, _ := protocolExamples(t)
	var documented []string
	for _, name := range methodName.FindAllStringSubmatch(text, -1) {
		documented = append(documented, name[1])
	}
	c := websocketClient(t, newServer(t, nil).address(websocketDoor)).initialize("")
	known := 0
	for _, e := range readTranscript(t, newVersion, "01_method_existence") {
		value, _ := decodeAny(e.Value).(map[string]any)
		method, _ := value["method"].(string)
		if method == "" {
			continue
		}
		if answer := c.call(method, rpcParams{}); answer.Error != nil && answer.Error.Code == -32601 {
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
