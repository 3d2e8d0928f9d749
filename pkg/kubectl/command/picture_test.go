// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// The measures of a picture, in CSS pixels: a line's height, a letter's width, the space around.
const (
	lineHeight  = 20
	letterWidth = 7.8
	around      = 18
)

// style is that of a terminal, light or dark as the reader's system is.
const style = `text{font:13px/20px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;` +
	`fill:#1b1f24;white-space:pre}rect{fill:#f6f7f8;stroke:#dfe2e6}.typed{font-weight:700}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6e9ed}rect{fill:#181c21;stroke:#2c323a}}`

// The documents' picture of kubectl device why is what the transcript of it shows.
func TestThePictureOfWhyIsThatOfItsTranscript(t *testing.T) {
	const file, command = "../../../docs/images/why.svg", "$ kubectl device why big"
	transcript, err := os.ReadFile("testdata/placement/placement.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(transcript), "\n"+command+"\n")
	shown, _, ended := strings.Cut(shown, "[exit status 1]\n")
	if !found || !ended || strings.Contains(shown, "\n$ ") {
		t.Fatalf("the transcript does not show that %q waits", command)
	}
	picture := draw(command + "\n" + shown)
	if *rewrite {
		if err := os.WriteFile(file, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if drawn, err := os.ReadFile(file); err != nil || string(drawn) != picture {
		t.Errorf("%s is another picture, %v; go test ./pkg/kubectl/command -rewrite draws it again", file, err)
	}
}

// draw draws what a terminal shows. The first line is typed.
func draw(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := int(float64(columns)*letterWidth)+2*around, len(lines)*lineHeight+2*around
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`role="img">`+"\n<title>%s</title>\n<style>%s</style>\n", width, height, html.EscapeString(lines[0]), style)
	fmt.Fprintf(&svg, `<rect x=".5" y=".5" width="%d" height="%d" rx="9"/>`+"\n", width-1, height-1)
	for i, line := range lines {
		class := ""
		if i == 0 {
			class = ` class="typed"`
		}
		// Letters of another font may be wider: they are set into the width that there is.
		length := float64(utf8.RuneCountInString(line)) * letterWidth
		if line != "" {
			fmt.Fprintf(&svg, `<text x="%d" y="%d" textLength="%.1f" xml:space="preserve"%s>%s</text>`+"\n", around,
				around+i*lineHeight+14, length, class, html.EscapeString(line))
		}
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}
