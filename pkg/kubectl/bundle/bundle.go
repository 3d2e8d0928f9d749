// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle writes what support needs to know about a cluster into one archive: what nodes and
// pods say about devices, events, policies, leases, versions, logs and metrics. It reads all of it
// from the API server, with the user's rights.
//
// Nothing is taken from an object but the fields that fields.go lists, so that a field that
// Kubernetes adds, or that is unknown here, is not in the archive. Lines of logs and metrics are
// taken as they are.
package bundle

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// The bounds of a bundle, in bytes before compression. What is over them is left out, and the index
// says so. docs/use/kubectl-device.md has them too.
const (
	maxTotal   = 128 << 20
	maxObjects = 32 << 20 // of each file with objects
	maxTable   = 8 << 20
	maxMetrics = 4 << 20 // of each scheduler
	maxLog     = 4 << 20
	maxLines   = 50_000 // of each log
	maxPods    = 20     // whose logs and metrics are read

	// partTimeout is how long the API server may take for one part.
	partTimeout = 2 * time.Minute
)

// Clients are what reads the cluster.
type Clients struct {
	Core         corev1client.CoreV1Interface
	Coordination coordinationclient.CoordinationV1Interface
	Admission    admissionclient.AdmissionregistrationV1Interface
	Version      discovery.ServerVersionInterfaceWithContext
}

// Options say what a bundle has.
type Options struct {
	// Nodes are the names of the nodes that count, and whose pods do; none means all. Pods without
	// a node count always.
	Nodes []string
	// Since is the age of the oldest event and of the oldest line of a log.
	Since time.Duration
	// NoLogs leaves logs out.
	NoLogs bool
	// PageSize is how many objects the API server lists at a time; 0 means all.
	PageSize int64
	// Now is when the bundle is made.
	Now time.Time
	// Client is the version of the program that makes it.
	Client string
	Tables Tables
}

// Tables print nodes and device pods for people, from the fields that are in the bundle.
type Tables struct {
	Nodes, Top func(io.Writer, []*corev1.Node, []*corev1.Pod) error
	Pods       func(io.Writer, []*corev1.Pod) error
}

// Missing is something that is not in a bundle.
type Missing struct{ What, Why string }

// part is one file of a bundle.
type part struct {
	name, what string
	content    []byte
}

// contents are the files of a bundle, and what is missing.
type contents struct {
	parts    []part
	findings []string
	missing  []Missing
	left     int // bytes up to maxTotal
}

// miss notes that something is missing.
func (c *contents) miss(what, format string, args ...any) {
	why := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	c.missing = append(c.missing, Missing{what, why})
}

// free returns how many bytes of limit may be added.
func (c *contents) free(limit int) int { return min(limit, c.left) }

func (c *contents) add(name, what string, content []byte) {
	c.left -= len(content)
	c.parts = append(c.parts, part{name, what, content})
}

// addText adds a text, up to the last line that is within limit.
func (c *contents) addText(name, what, text string, limit int) {
	if free := c.free(limit); len(text) > free {
		text = text[:strings.LastIndexByte(text[:free], '\n')+1]
		c.miss("the end of "+name, "%s, and the file ends there", bound(free, limit))
	}
	c.add(name, what, []byte(text))
}

// addObjects adds as many of the objects as are within maxObjects, each a YAML document.
func addObjects[T any](c *contents, name, kind string, objects []T) error {
	var text []byte
	added := 0
	for _, object := range objects {
		document, err := document(object)
		if err != nil {
			return err
		}
		if free := c.free(maxObjects); len(text)+len(document) > free {
			c.miss("the rest of "+name, "%s: it has the first %d of %d %s", bound(free, maxObjects), added,
				len(objects), kind)
			break
		}
		text = append(text, document...)
		added++
	}
	c.add(name, fmt.Sprintf("%s: %d", kind, added), text)
	return nil
}

// bound says which bound was met.
func bound(free, limit int) string {
	if free < limit {
		return fmt.Sprintf("a report has at most %d MiB", maxTotal>>20)
	}
	return fmt.Sprintf("such a file has at most %d MiB", limit>>20)
}

// Write makes a bundle and writes it to a file that its user alone may read, in place of one that
// is there. It returns what was found that needs attention, and what is missing in the bundle. With
// an error there is no new file: the file cannot be written, the API server cannot be reached, or
// ctx has ended.
func Write(ctx context.Context, path string, clients Clients, options Options) (findings []string, missing []Missing,
	err error) {
	var c *contents
	err = replace(path, func(to io.Writer) (err error) {
		if c, err = collect(ctx, clients, options); err != nil {
			return err
		}
		return archive(ctx, to, c, options)
	})
	if err != nil {
		return nil, nil, err
	}
	return c.findings, c.missing, nil
}

// Name is the name of a bundle that is made at that time, without an ending.
func Name(now time.Time) string { return "kubedevice-report-" + now.UTC().Format("20060102T150405Z") }
