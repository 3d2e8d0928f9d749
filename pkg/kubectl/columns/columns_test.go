// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package columns

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestColumnsAreAlignedAndNothingTrails(t *testing.T) {
	var out strings.Builder
	w := &Writer{Out: &out, Header: []string{"A", "LONG", "LAST"}}
	write := func(rows ...Row) {
		if err := w.Write(rows); err != nil {
			t.Fatal(err)
		}
	}
	write(Row{Text("x"), {Lines: "└─ ", Text: "é"}, Text("")}, Row{{Text: "wide cell"}, {}, {}})
	write(Row{Text("y"), Text("a longer one"), Text("z")}, Row{Text("only one, which moves no other")})
	const want = `A           LONG   LAST
x           └─ é   <none>
wide cell
y           a longer one   z
only one, which moves no other
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestALineIsAsLongAsTheTerminalIsWide(t *testing.T) {
	for _, width := range []int{0, 1, 10, 40, 41, 60, 200} {
		var out strings.Builder
		w := &Writer{Out: &out, Width: width, Color: true}
		last := strings.Repeat("0123456789", 6)
		err := w.Write([]Row{{Text("first"), {Text: last, Style: Red}}, {Text("x"), {Text: "short", Style: Green}}})
		if err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer(string(Red), "", string(Green), "", reset, "").Replace(out.String())
		first, second, _ := strings.Cut(plain, "\n")
		longest := width
		if width == 0 {
			longest = 1000
		}
		longest = max(longest, len("first")+len(gap)+minColumn)
		if n := utf8.RuneCountInString(first); n != min(longest, len("first")+len(gap)+len(last)) {
			t.Errorf("width %d: the line has %d columns: %q", width, n, first)
		}
		if cut := strings.HasSuffix(first, "…"); cut != (longest < len("first")+len(gap)+len(last)) {
			t.Errorf("width %d: it is %v that %q is cut", width, cut, first)
		}
		if second != "x       short\n" {
			t.Errorf("width %d: the other line is %q", width, second)
		}
		if !strings.Contains(out.String(), string(Red)) {
			t.Errorf("width %d: there is no colour", width)
		}
	}
}

func TestTheWidestColumnsAreShortenedWhereTheLastOneIsNotEnough(t *testing.T) {
	row := Row{
		Text("name-of-a-pod"), Text("main"), Text("node-with-a-long-name.example.com"),
		Text("gpu/GPU-5f2c6f32-8f0b-4a3f-9d4c-1c2b3a4d5e6f"), Text("Granted"),
		Text("a reason that is long enough to be cut"),
	}
	for _, width := range []int{72, 80, 100, 120, 160} {
		var out strings.Builder
		w := &Writer{Out: &out, Width: width, Header: []string{"POD", "CONTAINER", "NODE", "DEVICE", "STATE", "REASON"}}
		if err := w.Write([]Row{row}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("width %d: a line has %d columns: %q", width, n, line)
			}
		}
		if !strings.Contains(out.String(), "Granted   a ") {
			t.Errorf("width %d: what is short was cut, or what comes last is:\n%s", width, out.String())
		}
	}
}

func TestATextMovesNoCursor(t *testing.T) {
	if got := Text("a\x1b[2J\nb\r\u009bc").Text; got != "a [2J b  c" {
		t.Errorf("got %q", got)
	}
}

func TestAnErrorOfTheOutputIsReturned(t *testing.T) {
	broken := errors.New("broken pipe")
	if err := (&Writer{Out: failing{broken}}).Write([]Row{{Text("x")}}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestOutputThatIsNoTerminalIsPlain(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	none := func(string) string { return "" }
	if got := TerminalOf(file, none); got != (Terminal{}) {
		t.Errorf("a file is %+v", got)
	}
	if got := TerminalOf(&bytes.Buffer{}, none); got != (Terminal{}) {
		t.Errorf("a buffer is %+v", got)
	}
}

func TestTheEnvironmentSwitchesColoursOff(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"nothing":           {nil, true},
		"a usual terminal":  {map[string]string{"TERM": "xterm-256color"}, true},
		"NO_COLOR":          {map[string]string{"NO_COLOR": "1", "TERM": "xterm"}, false},
		"an empty NO_COLOR": {map[string]string{"NO_COLOR": ""}, true},
		"a dumb terminal":   {map[string]string{"TERM": "dumb"}, false},
	} {
		if got := colors(func(name string) string { return test.env[name] }); got != test.want {
			t.Errorf("%s: colours are %v, want %v", name, got, test.want)
		}
	}
}
