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
	"slices"
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
	// Width is how long a line may be: the last column is shortened to it, and the widest of the
	// others where that is not enough. 0 means any length.
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
			if i < len(row)-1 { // the last cell of a row moves no other
				w.widths[i] = max(w.widths[i], utf8.RuneCountInString(cell.Lines+cell.Text))
			}
		}
	}
	var text strings.Builder
	widths := w.fitted(all)
	for _, row := range all {
		w.writeRow(&text, row, widths)
	}
	_, err := io.WriteString(w.Out, text.String())
	return err
}

func (w *Writer) writeRow(to *strings.Builder, row Row, widths []int) {
	at, pending := 0, 0 // columns that are written, and blanks that are due before the next text
	for i, cell := range row {
		width := utf8.RuneCountInString(cell.Lines + cell.Text)
		switch {
		case w.Width == 0:
		case i == len(row)-1:
			cell, width = cell.shortened(max(w.Width-at-pending, minColumn), 0)
		default:
			cell, width = cell.shortened(widths[i], nameTail)
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
		pending += max(widths[i]-width, 0) + len(gap)
	}
	to.WriteString("\n")
}

// Widths that columns keep. Others than the last one are shortened to fairWidth first, for minLast
// of the last one, and then all to minColumn, or to their headers. nameTail runes stay at their
// ends.
const (
	minLast   = 24
	fairWidth = 12
	minColumn = 8
	nameTail  = 6
)

// fitted returns the widths of the columns, so that these rows fit into the Width if that is
// possible.
func (w *Writer) fitted(rows []Row) []int {
	widths := slices.Clone(w.widths)
	if w.Width > 0 {
		w.narrow(widths, fairWidth, w.excess(rows, minLast))
		w.narrow(widths, minColumn, w.excess(rows, minColumn)-sum(w.widths)+sum(widths))
	}
	return widths
}

// excess returns by how much the longest of the rows is too long with so much of its last cell.
func (w *Writer) excess(rows []Row, last int) (excess int) {
	for _, row := range rows {
		length := 0
		for i, cell := range row {
			if i < len(row)-1 {
				length += w.widths[i] + len(gap)
			} else {
				length += min(utf8.RuneCountInString(cell.Lines+cell.Text), last)
			}
		}
		excess = max(excess, length-w.Width)
	}
	return excess
}

// narrow takes so much from the widest columns, as long as they are wider than least and than their
// headers.
func (w *Writer) narrow(widths []int, least, excess int) {
	for ; excess > 0; excess-- {
		widest := -1
		for i, width := range widths {
			header := 0
			if i < len(w.Header) {
				header = utf8.RuneCountInString(w.Header[i])
			}
			if width > max(least, header) && (widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func sum(all []int) (total int) {
	for _, n := range all {
		total += n
	}
	return total
}

// shortened returns the cell with at most so many columns, if its part of a tree leaves some, and
// its width. As many of the last runes of its text stay as tail says, which tell names apart.
func (c Cell) shortened(most, tail int) (Cell, int) {
	text := []rune(c.Text)
	lines := utf8.RuneCountInString(c.Lines)
	if lines+len(text) <= most || most <= lines {
		return c, lines + len(text)
	}
	left := most - lines - 1
	tail = min(tail, left/2)
	c.Text = string(text[:left-tail]) + "…" + string(text[len(text)-tail:])
	return c, most
}
