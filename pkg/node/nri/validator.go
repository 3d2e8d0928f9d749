// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"

	"github.com/pelletier/go-toml/v2"
)

// containerdConfig is the part of containerd's configuration (version 3) that is read here.
type containerdConfig struct {
	// Imports are the other files that it was made from.
	Imports []string `toml:"imports"`
	Plugins struct {
		NRI *struct {
			Validator containerdValidator `toml:"default_validator"`
		} `toml:"io.containerd.nri.v1.nri"`
	} `toml:"plugins"`
}

type containerdValidator struct {
	Enable   bool     `toml:"enable"`
	Required []string `toml:"required_plugins"`
	Tolerate string   `toml:"tolerate_missing_plugins_annotation"`
}

// decodeContainerd returns the validator's settings in the output of containerd config dump, and
// the files that it imports.
func decodeContainerd(document string) (s Settings, imports []string, err error) {
	var config containerdConfig
	if err := toml.Unmarshal([]byte(document), &config); err != nil {
		return Settings{}, nil, err
	}
	if config.Plugins.NRI == nil {
		return Settings{}, nil, errors.New("it has no section for NRI")
	}
	v := config.Plugins.NRI.Validator
	return Settings{Enabled: v.Enable, Required: v.Required, Tolerated: v.Tolerate}, config.Imports, nil
}

// crioConfig is the part of CRI-O's configuration that is read here.
type crioConfig struct {
	CRIO struct {
		NRI struct {
			Validator *crioValidator `toml:"default_validator"`
		} `toml:"nri"`
	} `toml:"crio"`
}

type crioValidator struct {
	Enable   bool     `toml:"nri_enable_default_validator"`
	Required []string `toml:"nri_validator_required_plugins"`
	Tolerate string   `toml:"nri_validator_tolerate_missing_plugins_annotation"`
}

// decodeCRIO returns the validator's settings in the configuration that CRI-O serves.
func decodeCRIO(document string) (Settings, error) {
	var config crioConfig
	if err := toml.Unmarshal([]byte(document), &config); err != nil {
		return Settings{}, err
	}
	v := config.CRIO.NRI.Validator
	if v == nil {
		return Settings{}, errors.New("it has no section for the default validator")
	}
	return Settings{Enabled: v.Enable, Required: v.Required, Tolerated: v.Tolerate}, nil
}
