// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

const (
	magic   = "kubedevice-"
	version = "v1"
	block   = 4 << 10
)

// headerOf returns the header line of a body.
func headerOf(kind string, body []byte) string {
	return fmt.Sprintf("%s%s %s sha256:%x\n", magic, kind, version, sha256.Sum256(body))
}

// encode returns the header line and the body.
func encode(kind string, content any) (header string, body []byte, err error) {
	body, err = json.MarshalIndent(content, "", " ")
	if err != nil {
		return "", nil, err
	}
	size := len(headerOf(kind, nil)) + len(body)
	body = append(body, bytes.Repeat([]byte(" "), (block-size%block)%block)...)
	return headerOf(kind, body), body, nil
}

// parse returns the body of a file.
func parse(kind string, raw []byte) (body []byte, err error) {
	header, body, _ := bytes.Cut(raw, []byte("\n"))
	if fields := bytes.Fields(header); len(fields) > 1 && string(fields[0]) == magic+kind &&
		string(fields[1]) != version {
		return nil, fmt.Errorf(
			"it has the version %.20q, which this kubecri does not know; a later one may have written it",
			fields[1],
		)
	}
	if string(header)+"\n" != headerOf(kind, body) {
		return nil, fmt.Errorf("its first line is %.120q, which does not match the rest", header)
	}
	return body, nil
}
