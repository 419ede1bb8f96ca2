package gateway

import (
	"io"
	"slices"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// streamBase64 writes a JSON object whose last member, after begin, is what next
// returns until that is empty, in base64. A piece is not used any more when the
// next one is asked for. Three bytes become four signs; what is left of a piece
// goes with the next one. What is encoded is gathered, because there are clients
// to which every write costs as much as all before it.
func streamBase64(w io.Writer, begin string, next func() ([]byte, error)) error {
	gathered, giveBack := gather()
	defer giveBack()
	gathered = append(append(gathered, begin...), '"')
	var left, encoded []byte
	for {
		piece, err := next()
		if err != nil {
			return err
		}
		if len(piece) == 0 {
			break
		}
		if len(left) > 0 {
			piece = append(left, piece...)
		}
		whole := len(piece) - len(piece)%3
		left = slices.Clone(piece[whole:])
		encoded = jsonrpc.AppendBase64(encoded[:0], piece[:whole])
		if len(gathered)+len(encoded) > cap(gathered) {
			if _, err := w.Write(gathered); err != nil {
				return err
			}
			gathered = gathered[:0]
		}
		gathered = append(gathered, encoded[1:len(encoded)-1]...)
	}
	encoded = jsonrpc.AppendBase64(encoded[:0], left)
	_, err := w.Write(append(append(gathered, encoded[1:]...), '}'))
	return err
}
