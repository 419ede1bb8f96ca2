package rendezvous

import (
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// relayVersion is the protocol version of relay.proto.
const relayVersion = 1

// resetFrame encodes a reset.
func resetFrame(id, reason string) []byte {
	frame, err := proto.Marshal(&relayv1.RelayMessageFrame{
		Version: relayVersion, StreamId: id,
		Body: &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: reason}},
	})
	if err != nil { // an id that is not UTF-8 is rejected earlier
		panic("rendezvous: a reset cannot be encoded: " + err.Error())
	}
	return frame
}
