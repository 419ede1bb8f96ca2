package rendezvous

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// Reasons of the resets that a rendezvous sends.
const (
	reasonExecutorGone = "executor_gone"
	reasonHarnessGone  = "harness_gone"
	reasonSlowConsumer = "slow_consumer"
	reasonStreamLimit  = "stream_limit"
	reasonGoingAway    = "going_away"
)

// Numbers of relay.proto.
const (
	relayVersion     = 1
	streamIDField    = 2
	maxStreamIDBytes = 128
)

// streamIDOf returns the stream that a frame belongs to; ok is false if it tells
// none that may be. Of the rest it sees only how long it is.
func streamIDOf(frame []byte) (id string, ok bool) {
	var found []byte
	for len(frame) > 0 {
		number, kind, n := protowire.ConsumeTag(frame)
		if n < 0 {
			return "", false
		}
		frame = frame[n:]
		if number == streamIDField && kind == protowire.BytesType {
			if found, n = protowire.ConsumeBytes(frame); n < 0 {
				return "", false
			}
		} else if n = protowire.ConsumeFieldValue(number, kind, frame); n < 0 {
			return "", false
		}
		frame = frame[n:]
	}
	if len(found) == 0 || len(found) > maxStreamIDBytes || !utf8.Valid(found) {
		return "", false
	}
	id = string(found)
	return id, strings.TrimSpace(id) == id
}

// resetFrame tells the end of a stream.
func resetFrame(id, reason string) []byte {
	frame, err := proto.Marshal(&relayv1.RelayMessageFrame{
		Version: relayVersion, StreamId: id,
		Body: &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: reason}},
	})
	if err != nil { // of text that is not UTF-8, which no id here is
		panic("rendezvous: a reset cannot be encoded: " + err.Error())
	}
	return frame
}
