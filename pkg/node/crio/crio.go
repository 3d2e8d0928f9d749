// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crio reads the configuration that CRI-O serves.
package crio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxConfiguration is the most that is read of a configuration, in bytes.
const maxConfiguration = 1 << 20

// Socket is the path of the Unix socket at which a CRI-O serves the CRI.
type Socket string

// Configuration returns the configuration, in TOML, with which the CRI-O runs: it serves that on
// the socket of the CRI.
func (s Socket) Configuration(ctx context.Context) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", string(s))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://crio/config", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("get the configuration of CRI-O: %w", err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxConfiguration))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return "", fmt.Errorf("get the configuration of CRI-O: %w", err)
	}
	return string(content), nil
}
