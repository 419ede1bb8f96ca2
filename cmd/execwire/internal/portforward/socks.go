package portforward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Of RFC 1928.
const (
	socksVersion      = 5
	socksNoCredential = 0
	socksNoMethod     = 0xff
	socksConnect      = 1
	socksIPv4         = 1
	socksName         = 3
	socksIPv6         = 4
)

// Replies of RFC 1928.
const (
	socksSucceeded          = 0
	socksFailure            = 1
	socksNotAllowed         = 2
	socksHostUnreachable    = 4
	socksRefused            = 5
	socksTimedOut           = 6
	socksCommandUnsupported = 7
	socksAddressUnsupported = 8
)

// socksTimeout is how long a client may take for its request.
const socksTimeout = 10 * time.Second

// acceptSocks receives the request of a client of the SOCKS proxy. After an error the connection
// is of no use.
func acceptSocks(conn net.Conn) (host string, port uint16, err error) {
	_ = conn.SetDeadline(time.Now().Add(socksTimeout))
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	host, port, reply, err := readSocks(conn)
	if err != nil && reply != 0 {
		_ = sendSocks(conn, reply)
	}
	if err != nil {
		return "", 0, fmt.Errorf("a client of the SOCKS proxy failed: %w", err)
	}
	return host, port, nil
}

// readSocks reads greeting and request. A reply other than 0 is to be sent before the error.
func readSocks(conn io.ReadWriter) (host string, port uint16, reply byte, err error) {
	var b [2 + 255]byte
	if _, err := io.ReadFull(conn, b[:2]); err != nil {
		return "", 0, 0, err
	}
	if b[0] != socksVersion {
		return "", 0, 0, errors.New("it does not speak SOCKS 5")
	}
	methods := b[2 : 2+int(b[1])]
	if _, err := io.ReadFull(conn, methods); err != nil {
		return "", 0, 0, err
	}
	method := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoCredential {
			method = socksNoCredential
		}
	}
	if _, err := conn.Write([]byte{socksVersion, method}); err != nil {
		return "", 0, 0, err
	}
	if method == socksNoMethod {
		return "", 0, 0, errors.New("it wants to show a credential, and there is none")
	}
	if _, err := io.ReadFull(conn, b[:4]); err != nil {
		return "", 0, 0, err
	}
	if b[0] != socksVersion || b[1] != socksConnect {
		return "", 0, socksCommandUnsupported, errors.New("it wants something else than CONNECT")
	}
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[b[3]]
	isName := b[3] == socksName
	if isName {
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return "", 0, 0, err
		}
		size = int(b[0])
	}
	if size == 0 {
		return "", 0, socksAddressUnsupported, errors.New("its address cannot be read")
	}
	address := make([]byte, size+2)
	if _, err := io.ReadFull(conn, address); err != nil {
		return "", 0, 0, err
	}
	port = binary.BigEndian.Uint16(address[size:])
	if isName {
		return string(address[:size]), port, 0, nil
	}
	addr, _ := netip.AddrFromSlice(address[:size])
	return addr.String(), port, 0, nil
}

// answerSocks sends the result of connecting.
func answerSocks(conn net.Conn, err error) error {
	return sendSocks(conn, socksReply(err))
}

func sendSocks(conn net.Conn, reply byte) error {
	_, err := conn.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

func socksReply(err error) byte {
	if err == nil {
		return socksSucceeded
	}
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PORT_DENIED, execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:
		return socksNotAllowed
	case execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED:
		return socksRefused
	case execwirev1.ErrorReason_ERROR_REASON_PORT_UNREACHABLE:
		return socksHostUnreachable
	case execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECT_TIMED_OUT:
		return socksTimedOut
	}
	return socksFailure
}
