// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"strings"
	"time"
)

// never is what a bundle never has, in the words of docs/use/kubectl-device.md.
const never = `What is not in it
  Secrets, ConfigMaps, and of pods: environment, commands and their arguments, volumes, probes, security, termination
  messages, annotations of others. Objects have only the fields that are listed in the documentation of kubectl device.
  Lines of logs and metrics, and the messages of events and conditions, are as they were written: read them before you
  pass them on.
`

// index returns the text of index.txt.
func index(c *contents, options Options) string {
	var text strings.Builder
	nodes := "all"
	if len(options.Nodes) > 0 {
		nodes = strings.Join(options.Nodes, ", ") + ", and the pods without a node"
	}
	logs := "Events and logs"
	if options.NoLogs {
		logs = "Events"
	}
	fmt.Fprintf(&text, "A report of KubeDevice, made at %s by kubectl-device %s\nNodes: %s\n%s: of the last %v\n",
		options.Now.UTC().Format(time.RFC3339), options.Client, nodes, logs, options.Since)
	text.WriteString("\nWhat is in it\n")
	width := 0
	for _, part := range c.parts {
		width = max(width, len(part.name))
	}
	for _, part := range c.parts {
		fmt.Fprintf(&text, "  %-*s  %s\n", width, part.name, part.what)
	}
	if len(c.findings) > 0 {
		text.WriteString("\nWhat needs attention\n")
		for _, finding := range c.findings {
			fmt.Fprintf(&text, "  %s\n", finding)
		}
	}
	text.WriteString("\nWhat could not be read\n")
	for _, missing := range c.missing {
		fmt.Fprintf(&text, "  %s: %s\n", missing.What, missing.Why)
	}
	if len(c.missing) == 0 {
		text.WriteString("  (nothing)\n")
	}
	return text.String() + "\n" + never
}
