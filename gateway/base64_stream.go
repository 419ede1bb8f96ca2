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
	room := cap(gathered)
	var left []byte
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
		if len(gathered)+whole/3*4 > room {
			if _, err := w.Write(gathered); err != nil {
				return err
			}
			gathered = gathered[:0]
		}
		gathered = jsonrpc.AppendBase64Text(gathered, piece[:whole])
	}
	_, err := w.Write(append(jsonrpc.AppendBase64Text(gathered, left), `"}`...))
	return err
}

// largeBytes is the data whose text does not fit into a buffer that is used again.
const largeBytes = keptBuffer / 4 * 3

// largeAnswer is a result whose last member, after begin, is large data: it goes
// through a buffer that is used again, where an answer of its own would need a new
// one each time.
type largeAnswer struct {
	begin string
	data  []byte
	leave func()
}

func (a *largeAnswer) streamTo(w io.Writer) error {
	defer a.leave()
	return streamBase64(w, a.begin, func() ([]byte, error) {
		piece := a.data[:min(len(a.data), largeBytes)]
		a.data = a.data[len(piece):]
		return piece, nil
	})
}
