// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package columns writes tables: plain columns for programs and files, and on a terminal with
// colours, trees in the first column, and lines that are as long as the terminal is wide.
//
// A cell is one line. Its width is its number of runes: names of Kubernetes, and of devices, are
// ASCII.
package columns

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// gap is what separates columns, as in kubectl's tables.
const gap = "   "

// Style is how a cell looks where there are colours.
type Style string

// The styles: an ANSI colour each.
const (
	Plain  Style = ""
	Bold   Style = "\x1b[1m"
	Dim    Style = "\x1b[2m"
	Red    Style = "\x1b[31m"
	Green  Style = "\x1b[32m"
	Yellow Style = "\x1b[33m"
	reset        = "\x1b[0m"
)

// Cell is one cell of a table.
type Cell struct {
	// Lines is the part of a tree in front of the text, without a colour.
	Lines string
	Text  string
	Style Style
}

// Text returns a cell without a style. An empty text is <none>, as in kubectl's tables. Each
// control character becomes a blank: what a status says may come from anybody, and must neither
// begin a line nor move a terminal's cursor.
func Text(text string) Cell {
	if text == "" {
		text = "<none>"
	}
	return Cell{Text: strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)}
}

// Row is one line of a table.
type Row []Cell

// Writer writes one table, in one or several parts: a column never becomes narrower. It is not safe
// for concurrent use.
type Writer struct {
	Out io.Writer
	// Header are the names of the columns. It is written once, with the first part. No header is
	// written if it is empty.
	Header []string
	// Color says that styles are written.
	Color bool
	// Width is how long a line may be; the last column is shortened to it. 0 means any length.
	Width int

	widths  []int
	started bool
}

// Write writes a part of the table. The error is that of Out.
func (w *Writer) Write(rows []Row) error {
	var all []Row
	if !w.started && len(w.Header) > 0 {
		header := make(Row, len(w.Header))
		for i, name := range w.Header {
			header[i] = Cell{Text: name, Style: Bold}
		}
		all = append(all, header)
	}
	w.started = true
	all = append(all, rows...)
	for _, row := range all {
		for i, cell := range row {
			if i == len(w.widths) {
				w.widths = append(w.widths, 0)
			}
			if i < len(row)-1 { // what is last in its row pushes nothing aside
				w.widths[i] = max(w.widths[i], utf8.RuneCountInString(cell.Lines+cell.Text))
			}
		}
	}
	var text strings.Builder
	for _, row := range all {
		w.writeRow(&text, row)
	}
	_, err := io.WriteString(w.Out, text.String())
	return err
}

func (w *Writer) writeRow(to *strings.Builder, row Row) {
	at, pending := 0, 0 // columns that are written, and blanks that are due before the next text
	for i, cell := range row {
		width := utf8.RuneCountInString(cell.Lines + cell.Text)
		if w.Width > 0 && i == len(row)-1 {
			cell, width = cell.shortened(w.Width - at - pending)
		}
		if width > 0 {
			to.WriteString(strings.Repeat(" ", pending))
			to.WriteString(cell.Lines)
			if w.Color && cell.Style != Plain && cell.Text != "" {
				to.WriteString(string(cell.Style) + cell.Text + reset)
			} else {
				to.WriteString(cell.Text)
			}
			at, pending = at+pending+width, 0
		}
		pending += w.widths[i] - width + len(gap)
	}
	to.WriteString("\n")
}

// minWidth is what is left of a cell at least, however narrow the terminal is.
const minWidth = 24

// shortened returns the cell with at most that many runes, or minWidth if that is more, and how
// many it has.
func (c Cell) shortened(most int) (Cell, int) {
	most = max(most, minWidth)
	text := []rune(c.Text)
	lines := utf8.RuneCountInString(c.Lines)
	if lines+len(text) <= most || most <= lines {
		return c, lines + len(text)
	}
	c.Text = string(text[:most-lines-1]) + "…"
	return c, most
}
