package eventlog

import "testing"

func TestRestore_StateOfNoLog_Fails(t *testing.T) {
	output := func(seq, offset uint64, data string) Event {
		return Event{Seq: seq, Kind: Output, Stream: Stdout, Offset: offset, Data: []byte(data)}
	}
	stdout := func(total uint64) []StreamState { return []StreamState{{Stream: Stdout, Total: total}} }
	for name, state := range map[string]State{
		"a stream twice":           {Streams: append(stdout(0), stdout(0)...)},
		"an unknown stream":        {Streams: []StreamState{{Stream: streamEnd}}},
		"a stream without totals":  {Events: []Event{output(1, 0, "a")}},
		"less than is retained":    {Events: []Event{output(1, 0, "ab")}, Streams: stdout(1)},
		"no snapshot":              {Streams: stdout(1)},
		"a hole":                   {Events: []Event{output(1, 0, "a"), output(3, 1, "b")}, Streams: stdout(2)},
		"an offset twice":          {Events: []Event{output(1, 0, "a"), output(2, 0, "b")}, Streams: stdout(2)},
		"seq 0":                    {Events: []Event{output(0, 0, "a")}, Streams: stdout(1)},
		"an empty event":           {Events: []Event{output(1, 0, "")}, Streams: stdout(0)},
		"no kind":                  {Events: []Event{{Seq: 1}}},
		"closed before exited":     {Events: []Event{{Seq: 1, Kind: Closed}}},
		"exited twice":             {Events: []Event{{Seq: 1, Kind: Exited}, {Seq: 2, Kind: Exited}}},
		"output after closed":      {Events: []Event{{Seq: 1, Kind: Exited}, {Seq: 2, Kind: Closed}, output(3, 0, "a")}, Streams: stdout(1)},
		"a future acknowledgement": {Acknowledged: 1},
	} {
		if _, err := (*Files)(nil).Restore(&state); err == nil {
			t.Errorf("a log with %s was restored", name)
		}
	}
}
