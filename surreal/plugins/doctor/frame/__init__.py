"""What every section of the doctor is made of: findings, faults, checks, and who carries them out."""
