// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"fmt"
	"io/fs"
)

// redirect returns the change of a kubelet's file that makes the kubelet call the endpoint.
func (e *Enrolment) redirect(s source, endpoint string) (change, error) {
	before, err := e.options.Host.read(s.path)
	if err != nil {
		return change{}, err
	}
	if !before.Exists {
		return change{}, fmt.Errorf("%s: %w", s.path, fs.ErrNotExist)
	}
	after := before
	if after.Content, err = s.format.setEndpoint(before.Content, endpoint); err != nil {
		return change{}, fmt.Errorf("%s: %w", s.path, err)
	}
	return change{s.path, s.format, before, after}, nil
}

// refresh returns the changes of those files of the kubelet that do not say the endpoint, because
// they are not written yet or because somebody has taken it out since. The journal then has these
// files as they are now.
func (e *Enrolment) refresh(j *journal) (stale []change, err error) {
	for i, change := range j.Kubelet {
		now, err := e.endpointAt(source{change.Path, change.Format})
		if err != nil {
			return nil, err
		}
		if sameEndpoint(now, j.Endpoint) {
			continue
		}
		if j.Kubelet[i], err = e.redirect(source{change.Path, change.Format}, j.Endpoint); err != nil {
			return nil, err
		}
		stale = append(stale, j.Kubelet[i])
	}
	return stale, nil
}
