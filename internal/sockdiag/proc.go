//go:build linux

package sockdiag

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procAttempts is how often a table is read. Sockets that come and go meanwhile can hide another
// one.
const procAttempts = 3

// readProc looks for the socket of t in the tables of directory, normally /proc/net. They do not
// contain the control group.
func readProc(directory string, t tuple) (found record, err error) {
	for range procAttempts {
		if found, err = readTables(directory, t); !errors.Is(err, ErrNoOwner) {
			break
		}
	}
	return found, err
}

func readTables(directory string, t tuple) (record, error) {
	// An IPv6 socket can have mapped IPv4 addresses.
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(directory, name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			break // the kernel has no IPv6
		}
		if err != nil {
			return record{}, err
		}
		found, err := findInTable(f, t)
		_ = f.Close()
		if !errors.Is(err, ErrNoOwner) {
			return found, err
		}
	}
	return record{}, ErrNoOwner
}

// findInTable looks for the socket of t in one table. It returns [ErrNoOwner] if there is none.
func findInTable(table io.Reader, t tuple) (record, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if r, ok := parseLine(lines.Text()); ok && r.tuple == t {
			return r, nil
		}
	}
	if err := lines.Err(); err != nil {
		return record{}, err
	}
	return record{}, ErrNoOwner
}

// Indices of the fields of a line.
const (
	fieldLocal = 1 + iota
	fieldRemote
	fieldState
	fieldQueues
	fieldTimer
	fieldRetransmits
	fieldUID
	fieldTimeout
	fieldInode
	fieldCount
)

// parseLine parses one line. It returns false for the header.
func parseLine(line string) (r record, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < fieldCount {
		return record{}, false
	}
	var state, uid, inode uint64
	for _, field := range []struct {
		text string
		base int
		bits int
		to   *uint64
	}{{fields[fieldState], 16, 8, &state}, {fields[fieldUID], 10, 32, &uid}, {fields[fieldInode], 10, 32, &inode}} {
		var err error
		if *field.to, err = strconv.ParseUint(field.text, field.base, field.bits); err != nil {
			return record{}, false
		}
	}
	var localOK, remoteOK bool
	r.local, localOK = parseHexAddrPort(fields[fieldLocal])
	r.remote, remoteOK = parseHexAddrPort(fields[fieldRemote])
	r.state, r.UID, r.Inode = byte(state), uint32(uid), uint32(inode)
	return r, localOK && remoteOK
}

// parseHexAddrPort reads "0100007F:1D08": words of 32 bits in the order of this
// machine, and the port as a number.
func parseHexAddrPort(text string) (netip.AddrPort, bool) {
	addrText, portText, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(addrText)
	port, portErr := strconv.ParseUint(portText, 16, 16)
	if err != nil || portErr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	swapped := make([]byte, 0, len(raw))
	for word := 0; word < len(raw); word += 4 {
		swapped = nativeEndian.AppendUint32(swapped, uint32(raw[word])<<24|uint32(raw[word+1])<<16|uint32(raw[word+2])<<8|uint32(raw[word+3]))
	}
	addr, _ := netip.AddrFromSlice(swapped)
	return unmapped(netip.AddrPortFrom(addr, uint16(port))), true
}
