package bench

import (
	"bytes"
	"encoding/base64"

	"github.com/execwire/execwire/internal/testproc"
)

// notification encodes a message of output as clients get it.
func notification(data []byte) []byte {
	message := make([]byte, 0, 128+base64.StdEncoding.EncodedLen(len(data)))
	message = append(message, `{"method":"process/output","params":{"processId":"p","seq":100000,"stream":"stdout","chunk":"`...)
	return append(base64.StdEncoding.AppendEncode(message, data), `"}}`...)
}

// chunkBytes is how many bytes are in the chunk of a notification of output,
// without decoding it; -1 if it is none.
func chunkBytes(message []byte) int {
	const key = `"chunk":"`
	if !bytes.HasPrefix(message, []byte(`{"method":"process/output"`)) {
		return -1
	}
	start := bytes.Index(message, []byte(key)) + len(key)
	end := bytes.LastIndexByte(message, '"')
	n := (end - start) / 4 * 3
	for i := end - 1; i > start && message[i] == '='; i-- {
		n--
	}
	return n
}

func init() { testproc.Register("bench-bare-socket", serveBareSocket) }
