// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// endpointField is the endpoint in the kubelet's configuration, and endpointFlag the flag.
const (
	endpointField = "containerRuntimeEndpoint"
	endpointFlag  = "container-runtime-endpoint"
)

// defaultUpstream is the kubelet's endpoint where nothing says another one.
const defaultUpstream = "unix:///run/containerd/containerd.sock"

var (
	// fieldLine is the line of a YAML file with the endpoint, as kubeadm and people write it.
	fieldLine = regexp.MustCompile(`(?m)^(containerRuntimeEndpoint:[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s#]*)`)
	// flagText is the flag in a file of environment variables or a unit.
	flagText = regexp.MustCompile(`(--container-runtime-endpoint(?:=|[ \t]+)["']?)([^\s"'\\]+)`)
)

// format is how a file says the endpoint.
type format string

const (
	asField format = "field" // of the kubelet's configuration, in YAML
	asFlag  format = "flag"  // in a unit or a file of environment variables
)

// endpointIn returns the endpoint that the content of a file says, or "" if it says none.
func (f format) endpointIn(content []byte) (string, error) {
	if f == asFlag {
		if found := flagText.FindSubmatch(withoutComments(content)); found != nil {
			return string(found[2]), nil
		}
		return "", nil
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(content, &fields); err != nil {
		return "", err
	}
	endpoint, _ := fields[endpointField].(string)
	return endpoint, nil
}

// comment is a line that a unit or a file of environment variables has for people.
var comment = regexp.MustCompile(`(?m)^[ \t]*[#;].*$`)

// withoutComments returns the text with spaces for comments.
func withoutComments(content []byte) []byte {
	return comment.ReplaceAllFunc(content, func(line []byte) []byte {
		return []byte(strings.Repeat(" ", len(line)))
	})
}

// errForm is why an endpoint cannot be replaced.
var errForm = errors.New("the endpoint does not stand in a line of its own that can be replaced alone; write it as " +
	endpointField + `: "…"`)

// setEndpoint returns the content of a file with another endpoint. All other bytes are as they
// were. A configuration file without an endpoint gets a line at its end; with the endpoint "" the
// line is taken away.
func (f format) setEndpoint(content []byte, endpoint string) ([]byte, error) {
	if f == asFlag {
		return setFlag(content, endpoint)
	}
	changed := string(content)
	switch found := fieldLine.FindStringSubmatchIndex(changed); {
	case found != nil && endpoint == "":
		end := len(changed)
		if newline := strings.IndexByte(changed[found[1]:], '\n'); newline >= 0 {
			end = found[1] + newline + 1
		}
		changed = changed[:found[0]] + changed[end:]
	case found != nil:
		changed = changed[:found[4]] + endpoint + changed[found[5]:]
	case endpoint != "":
		if changed != "" && !strings.HasSuffix(changed, "\n") {
			changed += "\n"
		}
		changed += endpointField + ": " + endpoint + "\n"
	}
	before, after := map[string]any{}, map[string]any{}
	if err := yaml.Unmarshal(content, &before); err != nil {
		return nil, err
	}
	// Strict: a key that is written in another way would stand in it twice.
	if err := yaml.UnmarshalStrict([]byte(changed), &after); err != nil {
		return nil, errForm
	}
	wanted := maps.Clone(before)
	if delete(wanted, endpointField); endpoint != "" {
		wanted[endpointField] = endpoint
	}
	if !reflect.DeepEqual(wanted, after) {
		return nil, errForm
	}
	return []byte(changed), nil
}

// setFlag is setEndpoint for files with flags, all of which must have the flag.
func setFlag(content []byte, endpoint string) ([]byte, error) {
	found := flagText.FindAllSubmatchIndex(withoutComments(content), -1)
	if len(found) == 0 || endpoint == "" {
		return nil, fmt.Errorf("it has no --%s to replace", endpointFlag)
	}
	var changed []byte
	from := 0
	for _, at := range found {
		changed = append(append(changed, content[from:at[4]]...), endpoint...)
		from = at[5]
	}
	return append(changed, content[from:]...), nil
}

// sameEndpoint reports whether two endpoints are the same socket. The kubelet takes a path, too,
// and /var/run is a link to /run.
func sameEndpoint(a, b string) bool { return socketOf(a) == socketOf(b) }

func socketOf(endpoint string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, found := strings.CutPrefix(path, "/var/run/"); found {
		path = "/run/" + rest
	}
	return path
}
