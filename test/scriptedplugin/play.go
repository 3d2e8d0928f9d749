// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scriptedplugin

import (
	"bufio"
	"context"
	"fmt"
	"io"
)

// maxLine is the longest line of a script, in bytes.
const maxLine = 1 << 20

// Play carries out the lines of a script in order, and writes one line for each: what there is to
// say of it, which may be nothing. The plugin goes on after the last line. An error names its line.
func (p *Plugin) Play(ctx context.Context, script io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(script)
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		said, err := p.Do(ctx, lines.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if _, err := fmt.Fprintln(to, said); err != nil {
			return err
		}
	}
	return lines.Err()
}
