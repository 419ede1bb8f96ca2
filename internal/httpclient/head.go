package httpclient

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

var (
	errHeadTooLarge = errors.New("the head is too large")
	errStatus       = errors.New("invalid HTTP status")
)

// readHead reads up to the empty line that ends a head, at most limit bytes.
func readHead(r *bufio.Reader, limit int) ([]byte, error) {
	var head []byte
	for begins := 0; ; {
		part, err := r.ReadSlice('\n')
		if head = append(head, part...); len(head) > limit {
			return nil, errHeadTooLarge
		}
		switch {
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err == bufio.ErrBufferFull:
			continue
		case err != nil:
			return nil, err
		}
		if len(bytes.TrimRight(head[begins:], "\r\n")) == 0 {
			return head, nil
		}
		begins = len(head)
	}
}

// readResponse reads the head of the response, and skips interim responses.
// net/http parses it again, to determine where the body ends.
func readResponse(r *bufio.Reader, method string, limit int) (*http.Response, []Header, error) {
	for {
		head, err := readHead(r, limit)
		if err != nil {
			return nil, nil, err
		}
		if isInterim(head) {
			limit -= len(head)
			continue
		}
		again := bufio.NewReader(io.MultiReader(bytes.NewReader(head), r))
		response, err := http.ReadResponse(again, &http.Request{Method: method})
		if err != nil {
			return nil, nil, err
		}
		if response.StatusCode < http.StatusContinue {
			return nil, nil, errStatus
		}
		response.Header = nil // the body retains response
		return response, headersOf(head), nil
	}
}

// isInterim reports whether the head is an interim response.
func isInterim(head []byte) bool {
	version, rest, _ := bytes.Cut(head, []byte(" "))
	code, err := strconv.Atoi(string(rest[:min(len(rest), 3)]))
	return err == nil && bytes.HasPrefix(version, []byte("HTTP/1.")) && code/100 == 1 && code != http.StatusSwitchingProtocols
}

// headersOf returns the headers of a head that net/http has accepted, in order.
func headersOf(head []byte) []Header {
	var headers []Header
	_, rest, _ := strings.Cut(string(head), "\n")
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, "\r\n")
		if folded := strings.TrimLeft(line, " \t"); folded != line && len(headers) > 0 {
			last := &headers[len(headers)-1]
			last.Value = strings.Trim(last.Value+" "+folded, " \t")
			continue
		}
		if name, value, ok := strings.Cut(line, ":"); ok {
			headers = append(headers, Header{Name: strings.ToLower(name), Value: strings.Trim(value, " \t")})
		}
	}
	return headers
}
