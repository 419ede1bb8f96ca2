package relay

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

func document(t *testing.T) string {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// PROTOCOL.md mentions every limit and every reason.
func TestDocument_ListsEveryLimitAndReason(t *testing.T) {
	text := document(t)
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		field := config.Field(i)
		if field.IsExported() && field.Name != "Role" && field.Name != "Logger" && !strings.Contains(text, "| `"+field.Name+"` |") {
			t.Errorf("PROTOCOL.md does not tell of %s", field.Name)
		}
	}
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`Reason\w+ = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) == 0 {
		t.Fatal("errors.go has no reasons")
	}
	for _, reason := range reasons {
		if !strings.Contains(text, "| `"+reason[1]+"` |") {
			t.Errorf("PROTOCOL.md does not tell of reason %s", reason[1])
		}
	}
}

var examples = regexp.MustCompile("(?ms)^```frames (executor|harness)\n(.*?)^```$")

// The examples of PROTOCOL.md are executed.
func TestDocument_Examples(t *testing.T) {
	found := examples.FindAllStringSubmatch(document(t), -1)
	if len(found) < 5 {
		t.Fatalf("PROTOCOL.md has %d examples", len(found))
	}
	for i, example := range found {
		t.Run(fmt.Sprint(i+1, " ", example[1]), func(t *testing.T) {
			run := newExample(t, example[1])
			for line := range strings.Lines(example[2]) {
				run.run(strings.TrimSpace(line))
			}
			run.expectNothing()
		})
	}
}

// example is an endpoint that an example of PROTOCOL.md is run against.
type example struct {
	t     *testing.T
	table *table
	one   *streamState
	now   time.Time
}

func newExample(t *testing.T, role string) *example {
	c := Config{}
	if role == Harness.String() {
		c.Role = Harness
	}
	c = c.withDefaults()
	e := &example{t: t, table: newTable(c), now: begin}
	e.table.opened = func(one *streamState) { e.one = one }
	e.table.attach(e.now)
	return e
}

func (e *example) run(text string) {
	e.t.Helper()
	switch rest := text[2:]; text[0] {
	case '<':
		b := e.table.next(e.now, nil)
		if got := e.formatFrame(b); got != rest {
			e.t.Errorf("it sends %q, not %q", got, rest)
		}
	case '>':
		e.expectNothing()
		b, err := proto.Marshal(readFrame(e.t, rest))
		if err != nil {
			e.t.Fatal(err)
		}
		if err := e.table.handleFrame(e.now, b); err != nil {
			e.t.Error(err)
		}
	case '!':
		what, value, _ := strings.Cut(rest, " ")
		if what != "receive" && what != "ended" && what != "acknowledged" {
			e.expectNothing()
		}
		e.runEvent(what, value)
	default:
		e.t.Fatalf("the line %q", text)
	}
}

// expectNothing fails if a frame is sent.
func (e *example) expectNothing() {
	e.t.Helper()
	if b := e.table.next(e.now, nil); b != nil {
		e.t.Errorf("it sends %q", e.formatFrame(b))
	}
}

func (e *example) runEvent(what, value string) {
	e.t.Helper()
	if what != "ended" && e.one != nil {
		defer func() { e.table.update(e.one) }()
	}
	switch what {
	case "open":
		e.one = e.table.begin("s", e.now)
		e.table.update(e.one)
	case "send":
		e.one.send.push(newSegment("s", []byte(unquote(e.t, value)), 0, 1))
	case "receive":
		if got := e.one.pop(); string(got.payload) != unquote(e.t, value) {
			e.t.Errorf("it receives %q, not %s", got, value)
		}
	case "acknowledged":
		if e.one.peer != reliable || len(e.one.send.queue) > 0 {
			e.t.Errorf("%d segments are not acknowledged", len(e.one.send.queue))
		}
	case "plain":
		if e.one.peer != plain {
			e.t.Error("the peer is not taken for plain")
		}
	case "carrier":
		if value == "" {
			e.table.attach(e.now)
		} else {
			e.table.detach()
		}
	case "wait":
		d, err := time.ParseDuration(value)
		if err != nil {
			e.t.Fatal(err)
		}
		e.now = e.now.Add(d)
		e.table.fireTimers(e.now)
	case "ended":
		if e.one.flow.ended == nil || e.one.flow.ended.Reason != value {
			e.t.Errorf("the end is %v, not %s", e.one.flow.ended, value)
		}
	default:
		e.t.Fatalf("what happens is %q", what)
	}
}

func unquote(t *testing.T, text string) string {
	t.Helper()
	s, err := strconv.Unquote(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// formatFrame returns a frame in the notation of the document.
func (e *example) formatFrame(b []byte) string {
	if b == nil {
		return "nothing"
	}
	f, err := decode(b)
	if err != nil {
		return err.Error()
	}
	ack := fmt.Sprintf(", ack %d", f.ack)
	if f.ack == noSegment {
		ack = ", ack none"
	}
	if f.bits != 0 {
		ack += fmt.Sprintf(" bits %b", f.bits)
	}
	switch f.body {
	case bodyData:
		return fmt.Sprintf("data %d (%d of %d) %q", f.seq, f.index+1, f.count, f.payload) + ack
	case bodyAck:
		return "ack" + ack
	case bodyResume:
		return fmt.Sprintf("resume %d", f.next) + ack
	case bodyReset:
		return fmt.Sprintf("reset %s", f.reason) + ack
	}
	return "heartbeat" + ack
}

var frameLine = regexp.MustCompile(`^(ack|heartbeat|resume (\d+)|reset (\w+)|data (\d+) \((\d+) of (\d+)\) (".*")), ack (none|\d+)(?: bits ([01]+))?$`)

// readFrame parses a frame in the notation of the document.
func readFrame(t *testing.T, text string) *relayv1.RelayMessageFrame {
	t.Helper()
	part := frameLine.FindStringSubmatch(text)
	if part == nil {
		t.Fatalf("the frame %q", text)
	}
	number := func(i, base int) uint32 {
		if part[i] == "" {
			return 0
		}
		n, err := strconv.ParseUint(part[i], base, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	f := &relayv1.RelayMessageFrame{Version: 1, StreamId: "s", Ack: noSegment, AckBits: number(9, 2)}
	if part[8] != "none" {
		f.Ack = number(8, 10)
	}
	switch word, _, _ := strings.Cut(part[1], " "); word {
	case "ack":
		f.Body = &relayv1.RelayMessageFrame_AckFrame{AckFrame: &relayv1.RelayAck{}}
	case "heartbeat":
		f.Body = &relayv1.RelayMessageFrame_Heartbeat{Heartbeat: &relayv1.RelayHeartbeat{}}
	case "resume":
		f.Body = &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{NextSeq: number(2, 10)}}
	case "reset":
		f.Body = &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: part[3]}}
	default:
		f.Body = &relayv1.RelayMessageFrame_Data{Data: &relayv1.RelayData{
			Seq: number(4, 10), SegmentIndex: number(5, 10) - 1, SegmentCount: number(6, 10), Payload: []byte(unquote(t, part[7]))}}
	}
	return f
}
