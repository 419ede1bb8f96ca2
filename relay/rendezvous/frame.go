package rendezvous

import (
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// relayVersion is that of relay.proto.
const relayVersion = 1

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
