// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicepage

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeList is the page of all nodes.
type nodeList struct {
	Nodes []Node `json:"nodes"`
}

// writeText writes a line for each resource, below its node.
func (l nodeList) writeText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, node := range l.Nodes {
		switch {
		case node.Problem != "":
			fmt.Fprintf(w, "%s: %s\n", node.Name, node.Problem)
		case len(node.Devices) == 0:
			fmt.Fprintf(w, "%s: no devices\n", node.Name)
		default:
			fmt.Fprintf(w, "%s:\n", node.Name)
		}
		for _, device := range node.Devices {
			for _, r := range device.Resources {
				fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", device.Name, r.Name, r.amount(), r.holders())
			}
		}
	}
	return w.Flush()
}

// amount says how much of the resource is used.
func (r Resource) amount() string {
	if resource.IsEnumResource(types.ResourceName(r.Name)) {
		return fmt.Sprintf("mask %#x", r.Allocatable)
	}
	return fmt.Sprintf("%s of %s used", grouptree.Human(r.Used), grouptree.Human(r.Allocatable))
}

// holders names who holds the resource, and how much each when they share it.
func (r Resource) holders() string {
	texts := make([]string, len(r.Holders))
	for i, holder := range r.Holders {
		texts[i] = holder.Pod
		if holder.Quantity != r.Allocatable {
			texts[i] += " " + grouptree.Human(holder.Quantity)
		}
		if holder.Reserved {
			texts[i] += " (reserved)"
		}
	}
	return strings.Join(texts, ", ")
}

// writeText writes a line for each node.
func (p *Pod) writeText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	switch {
	case p.Node != "":
		fmt.Fprintf(w, "%s is bound to node %s: see ?node=%s\n", p.Name, p.Node, p.Node)
	case p.Problem != "":
		fmt.Fprintf(w, "%s: %s\n", p.Name, p.Problem)
	default:
		fits := 0
		for _, verdict := range p.Verdicts {
			if verdict.Fits {
				fits++
			}
		}
		fmt.Fprintf(w, "%s: the devices of %d of %d nodes fit\n", p.Name, fits, len(p.Verdicts))
	}
	for _, verdict := range p.Verdicts {
		text := fmt.Sprintf("fits\tscore %.2f", verdict.Score)
		switch {
		case verdict.Kubelet:
			text = "fits\tas far as devices go: the kubelet counts what it asks for"
		case !verdict.Fits:
			text = "does not fit\t" + verdict.Reason
		}
		if verdict.Preemptible {
			text += "; evicting pods could help"
		}
		fmt.Fprintf(w, "  %s\t%s\n", verdict.Node, text)
	}
	return w.Flush()
}
