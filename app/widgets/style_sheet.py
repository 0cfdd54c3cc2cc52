"""The style sheet, with the names of app.widgets.theme.Colours in place of colours."""

from string import Template

STYLE_SHEET = Template("""
QWidget { font-size: $body; color: $text; }
QMainWindow, QWidget#central, QWidget#chat { background: $window; }
QToolTip { background: $raised; color: $text; border: 1px solid $border; padding: 4px 6px; }

QWidget#topBar { background: $chrome; border-bottom: 1px solid $border; }
QLabel#brand { font-size: $large; font-weight: 600; }
QLabel[role="muted"] { color: $muted; }
QLabel[role="small"] { color: $muted; font-size: $small; }
QLabel#leftOut { border-top: 1px solid $border; padding: 6px 0px 12px 0px; }
QLabel[role="thought"] { color: $muted; }
QLabel[role="warning"] { color: $warning; font-size: $small; }
QLabel[role="strong"] { font-weight: 600; }
QLabel[role="figure"] { font-size: $title; font-weight: 600; }
QLabel[role="title"] { font-size: $title; font-weight: 600; }

QPushButton {
    background: $raised; border: 1px solid $border; border-radius: 8px; padding: 6px 14px;
}
QPushButton:hover { background: $hover; }
QPushButton:focus { border: 1px solid $focus; }
QPushButton:disabled { color: $faint; }
QPushButton[role="primary"] {
    background: $accent; color: $on_accent; border: 1px solid $accent; font-weight: 600;
}
QPushButton[role="primary"]:hover { background: $focus; }
QPushButton[role="primary"]:focus { border: 2px solid $text; padding: 5px 13px; }
QPushButton[role="primary"]:disabled {
    background: $raised; color: $faint; border: 1px solid $border;
}
QPushButton[role="quiet"] {
    background: transparent; border: 1px solid transparent; color: $muted; padding: 2px 6px;
    border-radius: 6px; font-size: $small;
}
QPushButton[role="quiet"]:hover { color: $text; background: $raised; }
QPushButton[role="quiet"]:focus { border: 1px solid $focus; color: $text; }
QPushButton[role="toggle"] {
    background: transparent; border: 1px solid $border; color: $muted; padding: 3px 10px;
    border-radius: 11px; font-size: $small;
}
QPushButton[role="toggle"]:hover { color: $text; background: $raised; }
QPushButton[role="toggle"]:checked {
    background: $accent; color: $on_accent; border: 1px solid $accent;
}
QPushButton[role="toggle"]:focus { border: 1px solid $focus; }
QPushButton[role="toggle"]:checked:focus { border: 1px solid $text; }
QPushButton[role="little"] {
    border-radius: 6px; padding: 3px 10px; font-size: $small; background: $hover;
}
QPushButton[role="little"]:hover { background: $bubble; }
QPushButton[role="suggestion"] {
    background: transparent; border: 1px solid $border; border-radius: 12px; padding: 10px 16px;
    color: $text; text-align: left;
}
QPushButton[role="suggestion"]:hover { background: $raised; }
QPushButton[role="suggestion"]:focus { border: 1px solid $focus; }
QPushButton#modelButton { padding: 8px 14px; }
QPushButton#modelButton::menu-indicator { image: none; width: 0; }

QFrame#modeSwitch { background: $raised; border: 1px solid $edge; border-radius: 9px; }
QPushButton[role="segment"] {
    background: transparent; border: 1px solid transparent; border-radius: 7px; padding: 4px 10px;
    color: $muted; font-size: $small;
}
QPushButton[role="segment"]:hover { color: $text; }
QPushButton[role="segment"]:checked { background: $accent; color: $on_accent; }
QPushButton[role="segment"]:focus { border: 1px solid $focus; }
QPushButton[role="segment"]:checked:focus { border: 1px solid $text; }
QFrame#controlsStrip { background: $surface; border: none; border-bottom: 1px solid $border; }
QGroupBox { border: none; border-top: 1px solid $border; margin-top: 6px; padding-top: 30px; }
QGroupBox::title { subcontrol-origin: border; left: 0; top: 8px; padding: 0; }
QFrame#card { background: $surface; border: 1px solid $border; border-radius: 12px; }
QWidget#page, QWidget#pageColumn { background: $window; }
QComboBox, QSpinBox, QDoubleSpinBox {
    background: $field; border: 1px solid $edge; border-radius: 8px; padding: 5px 10px;
    min-height: 20px; max-height: 20px;
}
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {
    subcontrol-origin: border; width: 0px;
}
QSpinBox QLineEdit, QDoubleSpinBox QLineEdit {
    background: transparent; border: none; border-radius: 0; padding: 0;
}
QComboBox:focus, QSpinBox:focus, QDoubleSpinBox:focus { border: 1px solid $focus; }
QComboBox:disabled, QSpinBox:disabled { color: $faint; background: transparent; }
QComboBox::drop-down { border: none; width: 22px; }
QComboBox QAbstractItemView {
    background: $raised; border: 1px solid $edge; selection-background-color: $hover;
    selection-color: $text; outline: none; padding: 4px;
}
QComboBox QAbstractItemView::item { min-height: 26px; padding: 2px 8px; border-radius: 5px; }
QComboBox QAbstractItemView::item:selected { background: $hover; color: $text; }
QCheckBox { spacing: 8px; }
QCheckBox::indicator {
    width: 14px; height: 14px; border-radius: 4px; border: 1px solid $muted; background: $field;
}
QCheckBox::indicator:checked { background: $accent; border: 1px solid $accent; }
QCheckBox:focus { color: $focus; }
QListWidget, QPlainTextEdit#report {
    background: $field; border: 1px solid $border; border-radius: 8px; padding: 4px; outline: none;
}
QListWidget:focus, QPlainTextEdit#report:focus { border: 1px solid $focus; }
QListWidget::item { padding: 4px 8px; border-radius: 6px; }
QListWidget::item:selected { background: $hover; color: $text; }
QPlainTextEdit#report { font-family: "$fixed"; font-size: $small; }

QMenu { background: $raised; border: 1px solid $border; border-radius: 8px; padding: 6px; }
QMenu::item { padding: 7px 24px 7px 12px; border-radius: 6px; }
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $faint; }
QMenu::separator { height: 1px; background: $border; margin: 6px 8px; }

QSlider:horizontal { min-height: 18px; }
QSlider::groove:horizontal { height: 4px; border-radius: 2px; background: $edge; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; }
QSlider::handle:horizontal {
    background: $text; width: 16px; height: 16px; margin: -6px 0; border-radius: 8px;
}
QSlider::handle:horizontal:focus { border: 2px solid $focus; width: 14px; height: 14px; }
QSlider:disabled { background: transparent; }
QSlider::sub-page:horizontal:disabled { background: $border; }
QSlider::handle:horizontal:disabled { background: $faint; }

QScrollArea { background: transparent; border: none; }
QWidget#transcriptColumn, QWidget#sidewaysContent { background: transparent; }
QScrollBar:vertical { background: transparent; width: 12px; margin: 2px; }
QScrollBar::handle:vertical { background: $edge; border-radius: 4px; min-height: 32px; }
QScrollBar:horizontal { background: transparent; height: 12px; margin: 2px; }
QScrollBar::handle:horizontal { background: $edge; border-radius: 4px; min-width: 32px; }
QScrollBar::handle:hover { background: $muted; }
QScrollBar::handle:disabled { background: transparent; }
QScrollBar::add-line, QScrollBar::sub-line { height: 0; width: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QTextBrowser { background: transparent; border: none; font-size: $text_size; }
QTextBrowser[role="thought"] { color: $muted; font-size: $body; }
QFrame#bubble { background: $bubble; border-radius: 14px; }
QFrame#codeCard { background: $code; border: 1px solid $border; border-radius: 10px; }
QFrame#toolCard { background: $surface; border: 1px solid $border; border-radius: 10px; }
QFrame#codeCard QTextBrowser, QFrame#toolCard QTextBrowser {
    font-family: "$fixed"; font-size: $body;
}

QFrame#chip { background: $raised; border: 1px solid $border; border-radius: 9px; }
QFrame#chip[kind="trouble"] { border: 1px solid $danger; }
QFrame#composer { background: $field; border: 1px solid $edge; border-radius: 16px; }
QFrame#composer[focused="true"] { border: 1px solid $focus; }
QPlainTextEdit#input { background: transparent; border: none; font-size: $text_size; }

QDialog, QMessageBox { background: $window; }
QMessageBox QLabel#qt_msgbox_label { font-size: $text_size; font-weight: 600; }
QDialogButtonBox { dialogbuttonbox-buttons-have-icons: 0; }
QDialogButtonBox QPushButton { min-width: 84px; }
QPlainTextEdit#system {
    background: $field; border: 1px solid $border; border-radius: 8px; padding: 4px 6px;
}
QPlainTextEdit#system:focus { border: 1px solid $focus; }
QRadioButton::indicator {
    width: 12px; height: 12px; border-radius: 7px; border: 1px solid $muted; background: $field;
}
QRadioButton::indicator:checked {
    border: 1px solid $accent;
    background: qradialgradient(cx: 0.5, cy: 0.5, radius: 0.5, fx: 0.5, fy: 0.5,
        stop: 0 $accent, stop: 0.55 $accent, stop: 0.65 $field, stop: 1 $field);
}
QRadioButton:focus { color: $focus; }
QFrame#sidebar { background: $chrome; border: none; border-right: 1px solid $border; }
QPushButton#newChat { text-align: left; padding: 7px 12px; }
QLineEdit {
    background: $field; border: 1px solid $edge; border-radius: 8px; padding: 6px 10px;
    selection-background-color: $accent; selection-color: $on_accent;
}
QLineEdit:focus { border: 1px solid $focus; }
QListView#chatList { background: transparent; border: none; outline: none; }
QListView#chatList QLineEdit { padding: 2px 8px; background: $field; }

QFrame#libraryDetails { background: $surface; border: 1px solid $border; border-radius: 12px; }
QFrame#downloadRow { background: $surface; border: 1px solid $border; border-radius: 10px; }
QTableView {
    background: transparent; border: none; outline: none; selection-background-color: $hover;
    selection-color: $text;
}
QTableView::item { border: none; border-bottom: 1px solid $border; padding: 0 8px; }
QTableView::item:selected { background: $hover; color: $text; }
QTableView:focus { border: 1px solid $focus; border-radius: 6px; }
QHeaderView { background: transparent; }
QHeaderView::section {
    background: transparent; color: $muted; border: none; border-bottom: 1px solid $border;
    padding: 6px 11px; font-size: $small;
}

QFrame#banner { background: $surface; border: 1px solid $border; border-radius: 12px; }
QFrame#banner[kind="trouble"] { border: 1px solid $danger; }
QFrame#enginePanel { background: $surface; border: none; border-left: 1px solid $border; }
QWidget#engineContent { background: $surface; }
QFrame#verdict { background: $raised; border: 1px solid $border; border-radius: 10px; }
QFrame#hint { background: $bubble; border-radius: 10px; }
QSplitter::handle { background: transparent; }
QSplitter::handle:hover { background: $accent; }
QProgressBar { background: $border; border: none; border-radius: 2px; max-height: 4px; }
QProgressBar::chunk { background: $accent; border-radius: 2px; }
QFrame#dropHint { background: $veil; border: 2px dashed $accent; border-radius: 18px; }
""")
