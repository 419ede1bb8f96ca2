package bench

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The floor of every JSON-RPC row: websocket frames with the same messages, made by a separate
// process with a plain socket.

const (
	bareSocketChunk = 32 << 10
	websocketGUID   = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// serveBareSocket prints where it listens and serves until it is signalled:
// /output/N sends N zeros in notifications made once, /relay/N the output of a
// process that writes as many, /echo what it gets, and /keys an answer to each
// key that it gets and what a terminal echoes.
func serveBareSocket([]string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("ws://%s\n", l.Addr())
	signals := make(chan os.Signal, 2)
	ossignal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if err := serveBareConn(conn); err != nil && !errors.Is(err, io.EOF) {
					fmt.Fprintln(os.Stderr, err)
				}
			}()
		}
	}()
	<-signals
	return 0
}

func serveBareConn(conn net.Conn) error {
	in, out := bufio.NewReaderSize(conn, bareBuffer), bufio.NewWriterSize(conn, bareBuffer)
	request, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	accept := sha1.Sum([]byte(request.Header.Get("Sec-Websocket-Key") + websocketGUID))
	fmt.Fprintf(out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:]))
	way, count, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	n, _ := strconv.ParseInt(count, 10, 64)
	switch way {
	case "output":
		err = bareSocketOutput(out, n)
	case "relay":
		err = bareSocketRelay(out, n)
	case "keys":
		return errors.Join(out.Flush(), bareSocketKeys(conn, in))
	default:
		return errors.Join(out.Flush(), bareSocketEcho(conn, in))
	}
	if err == nil {
		err = writeFrame(out, harness.OpClose, nil)
	}
	return errors.Join(err, out.Flush())
}

func writeFrame(w *bufio.Writer, opcode byte, message []byte) error {
	_ = w.WriteByte(0x80 | opcode) // a bufio.Writer returns its error again
	_, _ = w.Write(harness.FrameLength(0, len(message)))
	_, err := w.Write(message)
	return err
}

func bareSocketOutput(w *bufio.Writer, n int64) error {
	zeros := make([]byte, bareSocketChunk)
	whole := notification(zeros)
	for ; n >= bareSocketChunk; n -= bareSocketChunk {
		if err := writeFrame(w, harness.OpText, whole); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	return writeFrame(w, harness.OpText, notification(zeros[:n]))
}

// bareSocketRelay is the shortest way from a pipe to JSON frames, without retention, numbers
// or acknowledgements.
func bareSocketRelay(w *bufio.Writer, n int64) error {
	argv := zeros(n)
	cmd := exec.Command(argv[0], argv[1:]...)
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	chunk := make([]byte, bareSocketChunk)
	for err == nil {
		var n int
		if n, err = output.Read(chunk); n > 0 {
			err = errors.Join(err, writeFrame(w, harness.OpText, notification(chunk[:n])))
		}
	}
	if err != io.EOF {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return cmd.Wait()
}

// bareSocketEcho returns small messages unchanged.
func bareSocketEcho(conn net.Conn, in *bufio.Reader) error {
	for {
		message, err := readSmall(in)
		if err != nil {
			return err
		}
		if err := writeSmall(conn, message); err != nil {
			return err
		}
	}
}

// bareSocketKeys is the shortest way of a key to a terminal and back where a
// request has an answer, which comes before the echo: two goroutines and a lock.
func bareSocketKeys(conn net.Conn, in *bufio.Reader) error {
	master, end, err := startTerminal()
	if err != nil {
		return err
	}
	var order sync.Mutex
	answer := func(key []byte) error {
		order.Lock()
		defer order.Unlock()
		if _, err := master.Write(key); err != nil {
			return err
		}
		return writeSmall(conn, []byte(bareAnswer))
	}
	echo := func(data []byte) error {
		order.Lock()
		defer order.Unlock()
		return writeSmall(conn, notification(data))
	}
	var echoing sync.WaitGroup
	echoing.Go(func() {
		buf := make([]byte, 16)
		for {
			n, err := master.Read(buf)
			if err != nil || echo(buf[:n]) != nil {
				return // the terminal or the client is closed
			}
		}
	})
	for err == nil {
		var key []byte
		if key, err = readSmall(in); err == nil {
			err = answer(key)
		}
	}
	end()
	echoing.Wait()
	return err
}

// bareAnswer is what the bare socket answers to a key.
const bareAnswer = `{"id":1,"result":{"status":"accepted"}}`

// readSmall reads one message of at most 125 bytes. Clients here mask with zeros.
func readSmall(in *bufio.Reader) ([]byte, error) {
	var h [6]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return nil, err
	}
	message := make([]byte, h[1]&127)
	_, err := io.ReadFull(in, message)
	return message, err
}

// writeSmall sends a message by one write.
func writeSmall(conn net.Conn, message []byte) error {
	frame := append([]byte{0x80 | harness.OpText}, harness.FrameLength(0, len(message))...)
	_, err := conn.Write(append(frame, message...))
	return err
}
