// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
)

// checkName checks a name that is part of an annotation: of a resource, a container, a pod or a
// node. Names are visible ASCII without quotes and backslashes, so that their JSON is the name
// itself and a policy that searches the text finds it. Names also occur in paths, logs and the
// environment of containers.
func checkName(field, name string) error {
	fix := "use letters, digits and punctuation other than quotes and backslashes"
	if name == "" {
		return &Error{Field: field, Problem: "the name is empty", Fix: "name it"}
	}
	if len(name) > MaxNameBytes {
		return &Error{
			Field:   field,
			Problem: fmt.Sprintf("the name is %d bytes long", len(name)),
			Fix:     fmt.Sprintf("use at most %d", MaxNameBytes),
		}
	}
	for _, r := range name {
		if r <= ' ' || r > '~' || r == '"' || r == '\\' {
			return &Error{Field: field, Problem: fmt.Sprintf("the name has the character %q", r), Fix: fix}
		}
	}
	return nil
}

// checkResource checks the name of a resource: a path without empty segments and without "..".
func checkResource(field, name string) error {
	if err := checkName(field, name); err != nil {
		return err
	}
	if strings.Contains(name, "..") {
		return &Error{Field: field, Problem: `the name has ".."`, Fix: "use a name without it"}
	}
	if strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//") {
		return &Error{
			Field:   field,
			Problem: "the name has an empty segment",
			Fix:     `use one "/" between segments and none at the ends`,
		}
	}
	return nil
}
